"""The papers behind methods and metrics, by the keys that docstrings name."""

import re

PAPERS = {
    "abnar2020": "Abnar and Zuidema, Quantifying Attention Flow in Transformers, ACL 2020",
    "achtibat2024": "Achtibat et al., AttnLRP: Attention-Aware Layer-Wise Relevance Propagation, ICML 2024",
    "adebayo2018": "Adebayo et al., Sanity Checks for Saliency Maps, NeurIPS 2018",
    "ali2022": "Ali et al., XAI for Transformers: Better Explanations through Conservative Propagation, ICML 2022",
    "alvarezmelis2018": "Alvarez-Melis and Jaakkola, On the Robustness of Interpretability Methods, 2018",
    "ancona2018": "Ancona et al., Towards Better Understanding of Gradient-Based Attribution Methods, ICLR 2018",
    "arras2022": "Arras et al., CLEVR-XAI: Ground Truth Evaluation of Neural Network Explanations, Information Fusion 2022",
    "bach2015": "Bach et al., On Pixel-Wise Explanations by Layer-Wise Relevance Propagation, PLOS ONE 2015",
    "bertalmio2001": "Bertalmio et al., Navier-Stokes, Fluid Dynamics, and Image and Video Inpainting, CVPR 2001",
    "bhatt2020": "Bhatt et al., Evaluating and Aggregating Feature-Based Model Explanations, IJCAI 2020",
    "boehle2022": "Böhle et al., B-cos Networks: Alignment is All We Need for Interpretability, CVPR 2022",
    "bousselham2024": "Bousselham et al., LeGrad: An Explainability Method for Vision Transformers, 2024",
    "brendel2019": "Brendel and Bethge, Approximating CNNs with Bag-of-Local-Features Models, ICLR 2019",
    "castro2009": "Castro et al., Polynomial Calculation of the Shapley Value Based on Sampling, 2009",
    "chalasani2020": "Chalasani et al., Concise Explanations of Neural Networks Using Adversarial Training, ICML 2020",
    "chattopadhay2018": "Chattopadhay et al., Grad-CAM++, WACV 2018",
    "chefer2021": "Chefer et al., Transformer Interpretability Beyond Attention Visualization, CVPR 2021",
    "chefer2021generic": "Chefer et al., Generic Attention-Model Explainability, ICCV 2021",
    "chen2023": "Chen et al., Beyond Intuition: Rethinking Token Attributions inside Transformers, TMLR 2023",
    "cohen2025": "Cohen et al., A Meaningful Perturbation Metric for Evaluating Explainability Methods, 2025",
    "dabkowski2017": "Dabkowski and Gal, Real Time Image Saliency for Black Box Classifiers, NeurIPS 2017",
    "damelin2018": "Damelin and Hoang, On Surface Completion and Image Inpainting by Biharmonic Functions, 2018",
    "desai2020": "Desai and Ramaswamy, Ablation-CAM, WACV 2020",
    "deyoung2020": "DeYoung et al., ERASER: A Benchmark to Evaluate Rationalized NLP Models, ACL 2020",
    "draelos2020": "Draelos and Carin, Use HiResCAM Instead of Grad-CAM, 2020",
    "duan2024": "Duan et al., On the Evaluation Consistency of Attribution-Based Explanations (Meta-Rank), ECCV 2024",
    "erion2021": "Erion et al., Improving Performance of Deep Learning Models with Axiomatic Attribution Priors, 2021",
    "fel2021": "Fel et al., Look at the Variance! Explanations with Sobol-Based Sensitivity Analysis, NeurIPS 2021",
    "fu2020": "Fu et al., Axiom-Based Grad-CAM (XGrad-CAM), BMVC 2020",
    "hedstrom2023": "Hedström et al., Sanity Checks Revisited, NeurIPS 2023 workshop",
    "hesse2023": "Hesse et al., FunnyBirds: A Synthetic Vision Dataset for a Part-Based Analysis, ICCV 2023",
    "hesse2024": "Hesse et al., Benchmarking the Attribution Quality of Vision Models (IDSDS), NeurIPS 2024",
    "hooker2019": "Hooker et al., A Benchmark for Interpretability Methods in Deep Neural Networks, NeurIPS 2019",
    "jiang2021": "Jiang et al., LayerCAM, IEEE TIP 2021",
    "kapishnikov2021": "Kapishnikov et al., Guided Integrated Gradients, CVPR 2021",
    "kokhlikyan2020": "Kokhlikyan et al., Captum, 2020",
    "li2023": "Li et al., M4: A Unified XAI Benchmark for Faithfulness Evaluation, NeurIPS 2023",
    "liu2022": "Liu et al., Rethinking Attention-Model Explainability through Faithfulness Violation Test, ICML 2022",
    "lundberg2017": "Lundberg and Lee, A Unified Approach to Interpreting Model Predictions, NeurIPS 2017",
    "montavon2019": "Montavon et al., Layer-Wise Relevance Propagation: An Overview, 2019",
    "muhammad2020": "Muhammad and Yeasin, Eigen-CAM, IJCNN 2020",
    "novello2022": "Novello et al., Making Sense of Dependence: HSIC, NeurIPS 2022",
    "omeiza2019": "Omeiza et al., Smooth Grad-CAM++, 2019",
    "owen1977": "Owen, Values of Games with a Priori Unions, 1977",
    "petsiuk2018": "Petsiuk et al., RISE: Randomized Input Sampling for Explanation, BMVC 2018",
    "rao2022": "Rao et al., Towards Better Understanding Attribution Methods (DiFull), CVPR 2022",
    "ribeiro2016": "Ribeiro et al., Why Should I Trust You? (LIME), KDD 2016",
    "rieger2020": "Rieger and Hansen, IROF: A Low Resource Evaluation Metric for Explanation Methods, 2020",
    "rombach2022": "Rombach et al., High-Resolution Image Synthesis with Latent Diffusion Models, CVPR 2022",
    "rong2022": "Rong et al., A Consistent and Efficient Evaluation Strategy for Attribution Methods (ROAD), ICML 2022",
    "samek2017": "Samek et al., Evaluating the Visualization of What a Deep Neural Network Has Learned, 2017",
    "sargsyan2023": "Sargsyan et al., MI-GAN: A Simple Baseline for Image Inpainting on Mobile Devices, ICCV 2023",
    "selvaraju2017": "Selvaraju et al., Grad-CAM, ICCV 2017",
    "shrikumar2016": "Shrikumar et al., Not Just a Black Box, 2016",
    "shrikumar2017": "Shrikumar et al., Learning Important Features Through Propagating Activation Differences, ICML 2017",
    "simonyan2014": "Simonyan et al., Deep Inside Convolutional Networks, ICLR 2014 workshop",
    "sixt2020": "Sixt et al., When Explanations Lie: Why Many Modified BP Attributions Fail, ICML 2020",
    "smilkov2017": "Smilkov et al., SmoothGrad: Removing Noise by Adding Noise, 2017",
    "sparckjones1972": "Spärck Jones, A Statistical Interpretation of Term Specificity and Its Application in Retrieval, 1972",
    "springenberg2015": "Springenberg et al., Striving for Simplicity: The All Convolutional Net, ICLR 2015 workshop",
    "srinivas2019": "Srinivas and Fleuret, Full-Gradient Representation for Neural Network Visualization, NeurIPS 2019",
    "sundararajan2017": "Sundararajan et al., Axiomatic Attribution for Deep Networks, ICML 2017",
    "telea2004": "Telea, An Image Inpainting Technique Based on the Fast Marching Method, 2004",
    "wang2020": "Wang et al., Score-CAM, CVPR 2020 workshop",
    "xu2020": "Xu et al., Attribution in Scale and Space (Blur IG), CVPR 2020",
    "yang2023": "Yang et al., IDGI: Important Direction Gradient Integration, CVPR 2023",
    "yeh2019": "Yeh et al., On the (In)fidelity and Sensitivity of Explanations, NeurIPS 2019",
    "zeiler2014": "Zeiler and Fergus, Visualizing and Understanding Convolutional Networks, ECCV 2014",
    "zhang2018": "Zhang et al., Top-Down Neural Attention by Excitation Backprop, IJCV 2018",
    "zhao2023": "Zhao and Aletras, Incorporating Attribution Importance for Improving Faithfulness Metrics, ACL 2023",
}
"""Author, title and place by key."""

_KEY = re.compile(r"\b[a-z]+\d{4}[a-z]*\b")


def keys(note: str) -> list[str]:
    """The keys that a docstring's `Paper:` note names."""
    return _KEY.findall(note)


def cited(note: str) -> str:
    """A note with its keys spelled as citations; one that is not known stays as it is.

    Example:
        >>> cited("hesse2024; see chefer2021generic and own2030")
        'Hesse et al. (2024); see Chefer et al. (2021) and own2030'
    """
    return _KEY.sub(lambda key: _citation(PAPERS[key[0]]) if key[0] in PAPERS else key[0], note)


def _citation(paper: str) -> str:
    author, year = paper.partition(",")[0], re.findall(r"\b\d{4}\b", paper)[-1]
    return f"{author} ({year})"


def references(note: str) -> list[str]:
    """Author, title and place of every paper that a note names; a key that is not known stands for itself."""
    return [PAPERS.get(key, key) for key in keys(note)]
